//! Axes at other places: interpolation and nearest elements.

use super::support::*;
use mlc_dsl::ir::{Attr, DType};

#[test]
fn axes_at_other_places() {
    for (shape, axis) in
        [([2, 7, 5], 1), ([3, 2, 9], 2), ([6, 1, 3], 0), ([2, 1, 4], 1), ([0, 3, 2], 1)]
    {
        for (size, over, offset) in [(9, 1.7, -0.5), (3, 0.4, 0.0), (1, 0.3, -0.2), (0, 2.0, -0.5)]
        {
            check(&format!("{shape:?} along {axis} at {size} places"), close(DType::F32), |c| {
                let x = c.input(DType::F32, &shape);
                let yes = |b| Attr::Bool(b);
                let places = [
                    ("axis", Attr::int(axis)),
                    ("size", Attr::int(size)),
                    ("shift", Attr::float(0.5)),
                    ("times", Attr::float(1.0)),
                    ("over", Attr::float(over)),
                    ("offset", Attr::float(offset)),
                ];
                let mut out = vec![];
                for (add, up) in [(0.0, false), (-0.5, true), (0.5, false)] {
                    let mut attrs = places.to_vec();
                    attrs.extend([("add", Attr::float(add)), ("up", yes(up))]);
                    out.push(c.apply("nearest", &attrs, &[x]));
                }
                for (half, stretch, cubic, exclude, bounded) in [
                    (1, 1.0, false, false, false),
                    (1, 1.0, false, true, true),
                    (2, 1.0, true, false, false),
                    (2, 1.0, true, true, false),
                    (3, 0.4, false, true, false),
                ] {
                    let mut attrs = places.to_vec();
                    attrs.extend([("half", Attr::int(half)), ("stretch", Attr::float(stretch))]);
                    attrs.extend([("cubic", yes(cubic)), ("exclude", yes(exclude))]);
                    attrs.extend([("bounded", yes(bounded)), ("beyond", Attr::float(0.75))]);
                    out.push(c.apply("resample", &attrs, &[x]));
                }
                out
            });
        }
    }
}
