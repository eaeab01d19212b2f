# SPDX-License-Identifier: MIT OR Apache-2.0
# Five bodies that attract each other, step by step: arithmetic on floats in lists.

from itertools import combinations


def work(count):
    # Mass, position, velocity: a sun and four planets on nearly circular orbits.
    bodies = [[40.0, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    for distance in (5.0, 10.0, 19.0, 30.0):
        bodies.append([0.04 / distance, [distance, 0.0, 0.1], [0.0, (40.0 / distance) ** 0.5, 0.0]])
    pairs = list(combinations(bodies, 2))
    step = 0.01
    for _ in range(count):
        for (mass, (x, y, z), velocity), (other_mass, (other_x, other_y, other_z), other_velocity) in pairs:
            dx, dy, dz = x - other_x, y - other_y, z - other_z
            pull = step / (dx * dx + dy * dy + dz * dz) ** 1.5
            velocity[0] -= dx * other_mass * pull
            velocity[1] -= dy * other_mass * pull
            velocity[2] -= dz * other_mass * pull
            other_velocity[0] += dx * mass * pull
            other_velocity[1] += dy * mass * pull
            other_velocity[2] += dz * mass * pull
        for _, place, velocity in bodies:
            for axis in range(3):
                place[axis] += step * velocity[axis]
