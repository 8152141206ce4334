"""The protocol between the Linux kernel and a file system in user space. Knows nothing of threefs."""
