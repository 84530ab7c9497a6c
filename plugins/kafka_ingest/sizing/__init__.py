"""What loading takes, calculated from the traffic: tasks, memory, connections, disk, time."""
