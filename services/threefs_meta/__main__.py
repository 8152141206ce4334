from threefs_meta.main import main

main()
