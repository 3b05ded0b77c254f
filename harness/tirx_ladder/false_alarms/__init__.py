"""How often the measured gate is wrong: by simulated noise, and by pools of processes measured on a real GPU."""
