"""The mount: a cluster as a directory of this machine, through the kernel's FUSE."""
