//! Suggests known names that are similar to an unknown one.

/// The most names that are proposed.
const MOST: usize = 3;
/// Longer names are not compared.
const LONGEST: usize = 80;

/// Names that may have been meant, the nearest first: those a few letters away, or that begin as what was typed does.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let typed: Vec<char> = name.chars().flat_map(char::to_lowercase).take(LONGEST + 1).collect();
    if typed.is_empty() || typed.len() > LONGEST {
        return vec![];
    }
    let allowed = (typed.len() / 3).clamp(1, 3).min(typed.len() - 1);
    let own = letters(name);
    let far = |other: &str| -> Option<usize> {
        // Letters that the other name lacks are a step each.
        if (own & !letters(other)).count_ones() as usize > allowed {
            return None;
        }
        let other: Vec<char> = other.chars().flat_map(char::to_lowercase).take(LONGEST).collect();
        let begins = typed.len() >= 3 && other.starts_with(&typed);
        let steps = distance(&typed, &other);
        (steps <= allowed).then_some(steps).or(begins.then_some(allowed + 1))
    };
    let mut found: Vec<(usize, &str)> = known.filter_map(|n| Some((far(n)?, n))).collect();
    found.sort();
    found.dedup();
    // What is a letter away hides what is three away, the same in other case hides all.
    let most = found.first().map_or(0, |f| if f.0 == 0 { 0 } else { f.0 + 1 });
    found.into_iter().filter(|f| f.0 <= most).map(|f| f.1).take(MOST).collect()
}

/// The sentence `did you mean …?`, if a name is near.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = nearest(name, known);
    let quoted: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    (!near.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

/// The letters and digits that a name has, whatever their case, as a set that may take one for another.
fn letters(name: &str) -> u32 {
    name.bytes().fold(0, |set, b| set | 1 << (b & 31))
}

/// Letters inserted, removed, replaced or exchanged with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let last = &rows[i - 1];
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_names_are_proposed_and_far_ones_are_not() {
        let known = ["softmax", "softmin", "layer_norm", "layer_norm_bias", "add", "gelu", "Relu"];
        for (typed, meant) in [
            ("sofmax", vec!["softmax"]),
            ("sotfmax", vec!["softmax"]),
            ("layernorm", vec!["layer_norm"]),
            ("layer", vec!["layer_norm", "layer_norm_bias"]),
            ("RELU", vec!["Relu"]),
            ("relu", vec!["Relu"]),
            ("sub", vec![]),
            ("g", vec![]),
            ("", vec![]),
            ("quantised_matmul", vec![]),
        ] {
            assert_eq!(nearest(typed, known.into_iter()), meant, "{typed}");
        }
        assert!(nearest(&"a".repeat(1 << 20), known.into_iter()).is_empty());
    }
}
