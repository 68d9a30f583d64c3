"""Starting processes: the settings of a launch, the command that they amount to, and the processes themselves."""
