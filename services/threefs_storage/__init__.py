"""The storage service: chunks on local disks, replicated along chains."""
