from threefs_mount.main import main

main()
