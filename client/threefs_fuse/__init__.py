"""The protocol between the Linux kernel and a file system in user space. It knows nothing of threefs."""
