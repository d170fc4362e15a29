"""Read files of different types as text. What is read comes from anywhere, so time and memory are bounded."""
