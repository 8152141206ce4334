from threefs_cli.main import main

main()
