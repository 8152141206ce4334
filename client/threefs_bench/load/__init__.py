"""The load generator `threefs bench`: fio's options, job files and JSON, on a cluster or on any directory."""
