"""What a script does to the world: files, folders, logs, pictures, commands and clocks."""
