//! Pooled regions: bins of no, one and many samples, inside and outside of the image.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

fn image(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 101) as f64 / 7.0 - 6.0).collect();
    Tensor::from_f64(DType::F32, shape.to_vec(), &values)
}

const CORNERS: [[f64; 4]; 6] = [
    [0.0, 0.0, 6.0, 4.0],
    [1.3, 0.7, 3.9, 3.2],
    [-4.0, -3.0, 12.0, 9.0],
    [2.0, 2.0, 2.0, 2.0],
    [5.0, 4.0, 1.0, 1.0],
    [20.0, 20.0, 30.0, 30.0],
];

#[test]
fn bins_of_regions() {
    for (images, channels, [h, v]) in
        [(1, 1, [5, 7]), (2, 3, [4, 6]), (1, 40, [9, 8]), (1, 2, [1, 1])]
    {
        for (rows, columns, ratio) in [(1, 1, 0), (2, 3, 2), (7, 7, 0), (3, 2, 1)] {
            for (half, max) in [(true, false), (false, false), (true, true), (false, true)] {
                let name =
                    format!("{images} {channels} {h} {v} {rows} {columns} {ratio} {half} {max}");
                check(&name, close(DType::F32), |c| {
                    let first = c.given(image(&[images, channels, h, v]));
                    let last = c.given(image(&[images, h, v, channels]));
                    let perm = [("perm", Attr::ints([0, 3, 1, 2]))];
                    let turned = c.apply("transpose", &perm, &[last]);
                    let corners = c.given(Tensor::from_f64(
                        DType::F32,
                        vec![CORNERS.len(), 4],
                        CORNERS.as_flattened(),
                    ));
                    let of: Vec<i64> = (0..CORNERS.len()).map(|i| (i % images) as i64).collect();
                    let batch = c.given(Tensor::from_i64(DType::I64, vec![of.len()], &of));
                    let attrs = [
                        ("rows", Attr::int(rows)),
                        ("columns", Attr::int(columns)),
                        ("ratio", Attr::int(ratio)),
                        ("scale", Attr::float(0.75)),
                        ("half", Attr::Bool(half)),
                        ("max", Attr::Bool(max)),
                    ];
                    [first, turned]
                        .map(|x| c.apply("roi_align", &attrs, &[x, corners, batch]))
                        .to_vec()
                });
            }
        }
    }
}

#[test]
fn no_regions_and_no_channels() {
    for (channels, regions) in [(0, 2), (3, 0)] {
        check(&format!("{channels} {regions}"), close(DType::F32), |c| {
            let x = c.given(image(&[1, channels, 4, 4]));
            let corners = c.given(image(&[regions, 4]));
            let batch = c.given(Tensor::from_i64(DType::I64, vec![regions], &vec![0; regions]));
            let attrs = [("rows", Attr::int(2)), ("columns", Attr::int(2))];
            vec![c.apply("roi_align", &attrs, &[x, corners, batch])]
        });
    }
}
