"""Between the kernel's terms and ours."""
