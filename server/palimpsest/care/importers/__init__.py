"""Read the files of other memory tools and assistants."""
