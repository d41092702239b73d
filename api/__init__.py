"""The clients that programs use: starting a cluster, producing, consuming, administration, the command line."""
