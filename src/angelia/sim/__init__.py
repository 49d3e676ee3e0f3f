"""The simulator: a seeded discrete-event engine, networks, faults, workloads, checkers, experiments."""
