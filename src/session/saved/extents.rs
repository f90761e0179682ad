//! Extents and attributes as JSON. What is read is computed anew, so that a polynomial has the one representation that equality relies on,
//! whatever a file says.

use mlc_dsl::ir::{Atom, Attr, DType, Extent, Type};
use serde::{Deserialize, Serialize};

/// Powers that are read: no polynomial that is kept has more factors.
const MOST_POWER: u32 = 64;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub enum SavedExtent {
    Known(i64),
    /// Monomials, each a coefficient and atoms with powers.
    Sum(Vec<(i64, Vec<(SavedAtom, u32)>)>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedAtom {
    Symbol(String),
    Quotient(SavedExtent, SavedExtent),
    Remainder(SavedExtent, SavedExtent),
    Positive(SavedExtent),
    Common(Vec<SavedExtent>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedAttr {
    Int(SavedExtent),
    Ints(Vec<SavedExtent>),
    /// By its bits, as the next one: JSON has no infinities and no NaN.
    Float(u64),
    Floats(Vec<u64>),
    Bool(bool),
    Str(String),
    #[serde(rename = "type")]
    DType(String),
}

#[derive(Serialize, Deserialize)]
pub struct SavedType {
    #[serde(rename = "type")]
    dtype: String,
    shape: Vec<SavedExtent>,
}

impl From<&Extent> for SavedExtent {
    fn from(e: &Extent) -> SavedExtent {
        if let Some(v) = e.as_const() {
            return SavedExtent::Known(v);
        }
        let terms = e.terms().into_iter().map(|(monomial, coefficient)| {
            let atoms = monomial.iter().map(|(atom, power)| (SavedAtom::from(atom), *power));
            (coefficient, atoms.collect())
        });
        SavedExtent::Sum(terms.collect())
    }
}

impl From<&Atom> for SavedAtom {
    fn from(a: &Atom) -> SavedAtom {
        match a {
            Atom::Sym(name) => SavedAtom::Symbol(name.to_string()),
            Atom::Div(a, b) => SavedAtom::Quotient(a.into(), b.into()),
            Atom::Mod(a, b) => SavedAtom::Remainder(a.into(), b.into()),
            Atom::Positive(e) => SavedAtom::Positive(e.into()),
            Atom::Common(all) => SavedAtom::Common(all.iter().map(SavedExtent::from).collect()),
        }
    }
}

impl SavedExtent {
    /// The extent; `None` of what is too large to be one.
    pub fn read(&self) -> Option<Extent> {
        let terms = match self {
            SavedExtent::Known(v) => return Some(Extent::from(*v)),
            SavedExtent::Sum(terms) => terms,
        };
        let mut sum = Extent::from(0);
        for (coefficient, atoms) in terms {
            let mut product = Extent::from(*coefficient);
            for (atom, power) in atoms {
                let atom = atom.read()?;
                for _ in 0..*power.min(&MOST_POWER) {
                    product = &product * &atom;
                }
            }
            sum = &sum + &product;
        }
        (!sum.is_too_large()).then_some(sum)
    }
}

impl SavedAtom {
    fn read(&self) -> Option<Extent> {
        Some(match self {
            SavedAtom::Symbol(name) => Extent::sym(name),
            SavedAtom::Quotient(a, b) => a.read()?.floor_div(&b.read()?),
            SavedAtom::Remainder(a, b) => a.read()?.modulo(&b.read()?),
            SavedAtom::Positive(e) => e.read()?.positive(),
            SavedAtom::Common(all) => Extent::common(extents(all)?),
        })
    }
}

fn extents(all: &[SavedExtent]) -> Option<Vec<Extent>> {
    all.iter().map(SavedExtent::read).collect()
}

impl From<&Attr> for SavedAttr {
    fn from(a: &Attr) -> SavedAttr {
        match a {
            Attr::Int(e) => SavedAttr::Int(e.into()),
            Attr::Ints(all) => SavedAttr::Ints(all.iter().map(SavedExtent::from).collect()),
            Attr::Float(bits) => SavedAttr::Float(*bits),
            Attr::Floats(bits) => SavedAttr::Floats(bits.clone()),
            Attr::Bool(b) => SavedAttr::Bool(*b),
            Attr::Str(s) => SavedAttr::Str(s.clone()),
            Attr::DType(d) => SavedAttr::DType(d.name().into()),
        }
    }
}

impl SavedAttr {
    /// The attribute; `None` of a type or an extent that is none.
    pub fn read(&self) -> Option<Attr> {
        Some(match self {
            SavedAttr::Int(e) => Attr::Int(e.read()?),
            SavedAttr::Ints(all) => Attr::Ints(extents(all)?),
            SavedAttr::Float(bits) => Attr::Float(*bits),
            SavedAttr::Floats(bits) => Attr::Floats(bits.clone()),
            SavedAttr::Bool(b) => Attr::Bool(*b),
            SavedAttr::Str(s) => Attr::Str(s.clone()),
            SavedAttr::DType(name) => Attr::DType(name.parse().ok()?),
        })
    }
}

impl From<&Type> for SavedType {
    fn from(t: &Type) -> SavedType {
        let shape = t.shape.iter().map(SavedExtent::from).collect();
        SavedType { dtype: t.dtype.name().into(), shape }
    }
}

impl SavedType {
    /// The type; `None` of an element type or an extent that is none.
    pub fn read(&self) -> Option<Type> {
        let dtype: DType = self.dtype.parse().ok()?;
        Some(Type::new(dtype, extents(&self.shape)?))
    }
}
