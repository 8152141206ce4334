from threefs_bench.main import main

main()
