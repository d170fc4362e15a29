"""What an import, a purge and the doctor do about links and pages."""
