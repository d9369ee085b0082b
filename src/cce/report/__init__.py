"""Records and figures → pictures and pages."""
