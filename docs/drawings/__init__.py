"""The drawings of these pages as plain SVG, made by `make figures`. Nothing but Python is needed."""

from drawings.gallery import DRAWINGS

__all__ = ["DRAWINGS"]
