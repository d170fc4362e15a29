"""What the page shows and corrects beyond what the tools do."""
