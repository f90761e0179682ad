//! A layer or an operator by itself: one application of it to arrays of known types.

use super::output_name;
use crate::error::{Error, ErrorKind};
use crate::names;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, Program, Type, Value};
use mlc_dsl::library::{CallId, Callable, Library};
use mlc_dsl::shown;

/// The program that applies `name` to inputs of these types, in the order of its parameters, with these attributes; others take their defaults.
///
/// # Errors
/// Nothing has that name, it takes others, or it is not defined for these types.
pub fn application(
    library: &Library,
    name: &str,
    types: &[Type],
    attributes: &[(String, Attr)],
) -> Result<Program, Error> {
    let (id, call) = find(library, name)?;
    let place = || format!("layer `{}`", shown(name));
    if types.len() != call.inputs.len() {
        let (wanted, found) = (call.inputs.len(), types.len());
        let message = format!("{} takes {wanted} arrays, and {found} are given", place());
        let known: Vec<&str> = call.inputs.iter().map(|i| &*i.name).collect();
        let help = format!("its arrays are {}", known.join(", "));
        return Err(Error::new(ErrorKind::Input, message).at(place()).with_help(help));
    }
    let mut pairs = call.inputs.iter().zip(types);
    if let Some((i, ty)) = pairs.find(|(i, ty)| !i.ty.dtype.admits(ty.dtype)) {
        let place = format!("input `{}`", i.name);
        let message = format!("{place} of `{}` is no array of {}", shown(name), ty.dtype);
        let help = "give an array of another element type";
        return Err(Error::new(ErrorKind::Input, message).at(place).with_help(help));
    }
    let attributes = in_order(call, name, attributes)?;
    let mut builder = Builder::new(library);
    let inputs = call.inputs.iter().zip(types);
    let inputs: Vec<Value> = inputs.map(|(i, ty)| builder.input(&i.name, ty.clone())).collect();
    let outputs = builder.apply(id, &attributes, &inputs).map_err(|e| {
        let message = format!("{}: {e}", place());
        let help = "give arrays and attributes that its declaration allows";
        Error::new(ErrorKind::Input, message).at(place()).with_help(help)
    })?;
    let taken: Vec<&str> = call.inputs.iter().map(|i| &*i.name).collect();
    let named = |(i, v): (usize, Value)| {
        let name = output_name(call, i);
        (if taken.contains(&name.as_str()) { format!("{name}_out") } else { name }, v)
    };
    Ok(builder.finish(outputs.into_iter().enumerate().map(named).collect()))
}

fn find<'a>(library: &'a Library, name: &str) -> Result<(CallId, &'a Callable), Error> {
    let found = library.find(name).map(|id| (id, library.call(id)));
    found.ok_or_else(|| {
        let known: Vec<&str> = library.calls.iter().map(|c| &*c.name).collect();
        let help = names::did_you_mean(
            name,
            &known,
            "`mlc-rewrite list layers` names those that there are",
        );
        let message = format!("there is no layer `{}`", shown(name));
        Error::new(ErrorKind::Setting, message).at(format!("layer `{}`", shown(name))).or_help(help)
    })
}

/// Attributes in the order of the declaration.
fn in_order(
    call: &Callable,
    name: &str,
    given: &[(String, Attr)],
) -> Result<Vec<Option<Attr>>, Error> {
    let known: Vec<&str> = call.attrs.iter().map(|a| &*a.name).collect();
    let wrong = |attribute: &str, message: String, help: String| {
        let place = format!("attribute `{}` of `{}`", shown(attribute), shown(name));
        Error::new(ErrorKind::Setting, format!("{place} {message}")).at(place).with_help(help)
    };
    if let Some((n, _)) = given.iter().find(|(n, _)| !known.contains(&n.as_str())) {
        let help = match known.is_empty() {
            true => "it has no attributes".to_string(),
            false => format!("its attributes are {}", known.join(", ")),
        };
        return Err(wrong(n, "is not declared".into(), help));
    }
    let of = |a: &mlc_dsl::library::AttrParam| {
        let value =
            given.iter().find(|(n, _)| **n == *a.name).map(|(_, v)| a.ty.kind.taken(v.clone()));
        match &value {
            Some(v) if !a.ty.kind.admits(v) => {
                Err(wrong(&a.name, format!("is not {v}"), format!("it is {}", a.ty.kind.word())))
            }
            None if a.default.is_none() => {
                let help = format!("it has no default: give {}", a.ty.kind.word());
                Err(wrong(&a.name, "is missing".into(), help))
            }
            _ => Ok(value),
        }
    };
    call.attrs.iter().map(of).collect()
}
