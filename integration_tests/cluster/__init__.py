"""The connector with a Spark of several processes that share no disk with it: `make test-cluster`."""
