"""What those who operate a server need: probes, an orderly end, numbers and a log without content."""
