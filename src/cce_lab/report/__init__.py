"""Records of runs → compression factors, tables, charts and a page; figures of theory → pictures. No torch."""
