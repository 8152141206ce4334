from threefs_manager.main import main

main()
