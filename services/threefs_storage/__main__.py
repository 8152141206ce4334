from threefs_storage.main import main

main()
