"""Partition of rows into segments, which do not depend on the threads, and of these into parts."""

from drawing import BLUE, GREEN, ORANGE, arrow, box, canvas, label

axes = canvas(4.3)

label(axes, 1, 41, "1  Entries of all rows", ha="left", weight="bold")
rows = [
    (3, "1"),
    (5, "2"),
    (2, ""),
    (4, "4"),
    (19.4, "row 5: 2,600 entries"),
    (3.4, "6"),
    (5.4, "7"),
]
x, starts = 1.0, []
for width, text in rows:
    box(axes, x, 34, width, 4.6, text, ORANGE if "row" in text else BLUE, size=9.5)
    starts.append(x)
    x += width + 0.8

label(axes, 1, 30.6, "2  Segments of at most 1,024 entries", ha="left", weight="bold")
segments = [rows[0][0], rows[1][0], rows[2][0], rows[3][0], 7.4, 7.4, 3, rows[5][0], rows[6][0]]
x, ends = 1.0, []
for k, width in enumerate(segments):
    box(axes, x, 23.6, width, 4.6, "", ORANGE if 4 <= k <= 6 else BLUE)
    ends.append((x, x + width))
    x += width + 0.8

label(axes, 1, 20.2, "3  Parts of equal work, taken by free threads", ha="left", weight="bold")
for first, last, text in (0, 3, "part 1"), (4, 4, "part 2"), (5, 6, "part 3"), (7, 8, "part 4"):
    left, right = ends[first][0], ends[last][1]
    box(axes, left, 13.2, right - left, 4.6, text, GREEN, size=9.5)

for k in range(4, 7):
    middle = sum(ends[k]) / 2
    arrow(axes, (middle, 12.9), (26.5 + 2.4 * (k - 5), 9.9), ORANGE)
box(axes, 19.5, 5.6, 14, 4, "sum of row 5", ORANGE, size=10)
label(axes, 1, 2.8, "4  Sums of a split row joined in order, in float64", ha="left", weight="bold")
