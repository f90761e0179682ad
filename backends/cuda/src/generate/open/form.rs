//! Linear forms of index variables whose factors are extents, open ones among them.
//!
//! What is said of a form holds for every value of the symbols: a position is within an axis only where that is proved.

use mlc_dsl::ir::Extent;

/// The number of an index variable of a function.
pub type Variable = usize;

/// `constant + Σ factor * variable`; variables in order, no factor zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub constant: Extent,
    pub terms: Vec<(Variable, Extent)>,
}

impl Form {
    /// A number.
    pub fn number(n: Extent) -> Form {
        Form { constant: n, terms: vec![] }
    }

    /// A variable.
    pub fn variable(v: Variable) -> Form {
        Form { constant: Extent::from(0), terms: vec![(v, Extent::from(1))] }
    }

    /// The number that it is, if no variable occurs.
    pub fn as_number(&self) -> Option<&Extent> {
        self.terms.is_empty().then_some(&self.constant)
    }

    /// The variable that it is, if it is a single one.
    pub fn as_variable(&self) -> Option<Variable> {
        match self.terms.as_slice() {
            [(v, one)] if one.is(1) && self.constant.is(0) => Some(*v),
            _ => None,
        }
    }

    /// The factor of a variable; 0 if there is none.
    pub fn factor(&self, v: Variable) -> Extent {
        self.terms.iter().find(|t| t.0 == v).map_or(Extent::from(0), |t| t.1.clone())
    }

    /// The sum with a multiple of another form; `None` if a factor outgrows what an extent may be.
    pub fn plus(&self, other: &Form, factor: &Extent) -> Option<Form> {
        let mut out = self.clone();
        out.constant = &out.constant + &(&other.constant * factor);
        for (v, c) in &other.terms {
            let more = c * factor;
            match out.terms.binary_search_by_key(v, |t| t.0) {
                Ok(at) => out.terms[at].1 = &out.terms[at].1 + &more,
                Err(at) => out.terms.insert(at, (*v, more)),
            }
        }
        out.terms.retain(|t| !t.1.is(0));
        let is_lost = |n: &Extent| n.is_too_large();
        let any_lost = is_lost(&out.constant) || out.terms.iter().any(|t| is_lost(&t.1));
        (!any_lost).then_some(out)
    }

    /// A multiple.
    pub fn times(&self, factor: &Extent) -> Option<Form> {
        Form::number(Extent::from(0)).plus(self, factor)
    }

    /// The smallest and the largest value where each variable takes `count` values from 0 on; `None` if a factor has no sign.
    fn range(&self, count: &dyn Fn(Variable) -> Extent) -> Option<(Extent, Extent)> {
        let (mut low, mut high) = (self.constant.clone(), self.constant.clone());
        for (v, factor) in &self.terms {
            let most = &(&count(*v) - &Extent::from(1)) * factor;
            if factor.at_least(0) {
                high = &high + &most;
            } else if (-factor).at_least(0) {
                low = &low + &most;
            } else {
                return None;
            }
        }
        Some((low, high))
    }

    /// Whether it is seen to be a position of an axis of `n` elements wherever all variables have a value.
    pub fn is_within(&self, n: &Extent, count: &dyn Fn(Variable) -> Extent) -> bool {
        let Some((low, high)) = self.range(count) else { return false };
        low.at_least(0) && (&(n - &Extent::from(1)) - &high).at_least(0)
    }

    /// Quotient and remainder, if both are linear forms: the multiples of the divisor leave, and the rest is within one of it.
    pub fn divided(&self, by: &Extent, count: &dyn Fn(Variable) -> Extent) -> Option<(Form, Form)> {
        let zero = || Form::number(Extent::from(0));
        let (mut quotient, mut rest) = (zero(), zero());
        match (self.constant.as_const(), by.as_const()) {
            (Some(c), Some(b)) if b > 0 => {
                quotient.constant = c.div_euclid(b).into();
                rest.constant = c.rem_euclid(b).into();
            }
            _ => match self.constant.div_exact(by) {
                Some(c) => quotient.constant = c,
                None => rest.constant = self.constant.clone(),
            },
        }
        for (v, factor) in &self.terms {
            match factor.div_exact(by) {
                Some(c) => quotient.terms.push((*v, c)),
                None => rest.terms.push((*v, factor.clone())),
            }
        }
        rest.is_within(by, count).then_some((quotient, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_proved_for_every_length() {
        let (seq, one) = (Extent::sym("seq"), Extent::from(1));
        let counts = [Extent::sym("batch"), seq.clone(), Extent::from(64)];
        let count = |v: Variable| counts[v].clone();
        let row = Form::variable(0).times(&seq).and_then(|f| f.plus(&Form::variable(1), &one));
        let row = row.expect("is small");
        assert!(row.is_within(&(&seq * &counts[0]), &count));
        assert!(!row.is_within(&seq, &count));
        let at = row.times(&Extent::from(64)).and_then(|f| f.plus(&Form::variable(2), &one));
        let (quotient, rest) =
            at.expect("is small").divided(&Extent::from(64), &count).expect("divides");
        assert_eq!((quotient, rest), (row.clone(), Form::variable(2)));
        let (quotient, rest) = row.divided(&seq, &count).expect("divides");
        assert_eq!((quotient, rest), (Form::variable(0), Form::variable(1)));
        // The fifth element of an axis is there for some lengths alone.
        assert!(!Form::number(Extent::from(4)).is_within(&seq, &count));
        assert_eq!(row.divided(&Extent::from(2), &count), None);
    }
}
