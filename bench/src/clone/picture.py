# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads Pillow, reports that it is ready, and processes a picture."""
from PIL import Image, ImageDraw, ImageFilter
import pando

pando.ready()
picture = Image.linear_gradient("L").resize((1280, 960)).convert("RGB")
draw = ImageDraw.Draw(picture)
for step in range(0, 960, 40):
    draw.line((0, step, 1280, 960 - step), fill=(step % 256, 255 - step % 256, 128), width=5)
small = picture.resize((640, 480), Image.Resampling.LANCZOS)
small = small.filter(ImageFilter.GaussianBlur(4)).rotate(30, Image.Resampling.BICUBIC).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
print(sum(small.histogram()), flush=True)
