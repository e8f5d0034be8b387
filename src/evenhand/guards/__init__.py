"""The guard: answers of any model that went through a mitigation method, with a record of what was changed and why."""
