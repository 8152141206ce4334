"""What the mount and the kernel know of names and attributes, and when that ends."""
