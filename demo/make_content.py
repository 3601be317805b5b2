#!/usr/bin/env python3
"""Writes the demo's web site: synthetic pages and noise images, the same on every run.

usage: make_content.py DIRECTORY
"""
import pathlib
import random
import struct
import sys
import zlib

WORDS = "packet queue buffer ring segment worker filter chain monitor policy stream burst token gauge".split()


def page(rng, title, paragraphs):
    body = "\n".join(
        "<p>" + " ".join(rng.choice(WORDS) for _ in range(70)).capitalize() + ".</p>" for _ in range(paragraphs)
    )
    return f"<!doctype html>\n<title>{title}</title>\n<link rel=stylesheet href=/style.css>\n<h1>{title}</h1>\n{body}\n"


def png(rng, side):
    """An RGB image of random pixels (PNG, RFC 2083): noise does not compress, so its size is side * side * 3."""
    rows = b"".join(b"\0" + rng.randbytes(side * 3) for _ in range(side))

    def chunk(kind, data):
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    header = struct.pack("!IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng = random.Random(1)
    site = pathlib.Path(sys.argv[1])
    for folder in ("page", "img", "docs/sql", "maths"):
        (site / folder).mkdir(parents=True, exist_ok=True)
    (site / "index.html").write_text(page(rng, "Weir demo site", 3))
    (site / "style.css").write_text("".join(f".{w} {{ margin: {i}px }}\n" for i, w in enumerate(WORDS)))
    (site / "long.html").write_text(page(rng, "A long page", 60))
    (site / "docs/sql/select-from-where.html").write_text(page(rng, "SELECT ... FROM ... WHERE", 2))
    (site / "maths/1=1.html").write_text(page(rng, "1=1 is a true statement", 2))
    for n in range(1, 13):
        (site / f"page/{n}.html").write_text(page(rng, f"Page {n}", 2 + n % 5))
    for n in range(1, 9):
        (site / f"img/{n}.png").write_bytes(png(rng, 24 + 5 * n))


main()
