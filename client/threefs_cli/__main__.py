from threefs_cli.entry_point import main

main()
