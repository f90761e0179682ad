//! The table of function names: functions on attributes, with what they yield, and functions that only meanings apply to elements.

use serde::{Deserialize, Serialize};

macro_rules! functions {
    (
        attributes: { $($variant:ident $name:literal ($params:literal) $does:literal)* }
        elements: { $($element:ident $word:literal)* }
    ) => {
        /// A function of attribute expressions or of elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Function {
            $(#[doc = $does] $variant,)*
            $(#[doc = concat!("`", $word, "` of elements or of their indices.")] $element,)*
        }

        /// Every function on attributes with its parameters and one line of what it yields.
        pub const FUNCTIONS: &[(&str, &str, &str)] = &[$(($name, $params, $does)),*];

        impl Function {
            /// Its name in texts.
            pub fn name(self) -> &'static str {
                match self {
                    $(Function::$variant => $name,)*
                    $(Function::$element => $word,)*
                }
            }

            /// The function of a name.
            pub fn named(name: &str) -> Option<Function> {
                match name {
                    $($name => Some(Function::$variant),)*
                    $($word => Some(Function::$element),)*
                    _ => None,
                }
            }

            /// The function on attributes of a name.
            pub fn of_attributes(name: &str) -> Option<Function> {
                match name {
                    $($name => Some(Function::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

functions! {
    attributes: {
        Permute "permute" ("list, perm") "entry `i` is `list[perm[i]]`"
        Unpermute "unpermute" ("list, perm") "entry `perm[i]` is `list[i]`"
        Inverse "inverse" ("perm") "the permutation that undoes `perm`"
        Compose "compose" ("p, q") "entry `i` is `p[q[i]]`"
        Pick "pick" ("list, positions") "the entries at these positions"
        Drop "drop" ("list, positions") "the entries at all other positions"
        Wide "wide" ("list") "the positions of all entries but those that are 1"
        Weave "weave" ("kept, inserted, positions") "the list with `inserted` at `positions`, `kept` elsewhere"
        PositionsAfterDrop "positions_after_drop" ("positions, dropped")
            "where positions come to lie once others are dropped"
        Replace "replace" ("list, position, value") "the list with one entry changed"
        Entry "entry" ("list, position") "one entry"
        Range "range" ("n | from, to") "the integers from 0 (or `from`) up to, not including, `n` (or `to`)"
        Fill "fill" ("n, value") "`n` equal entries"
        Reverse "reverse" ("list") "the entries from last to first"
        Length "length" ("list") "number of entries"
        Rank "rank" ("x") "number of axes of a tensor or a segment"
        Shape "shape" ("x") "extents of a tensor"
        Dtype "dtype" ("x") "element type of a tensor"
        Product "product" ("list") "product of all entries"
        Total "total" ("list") "sum of all entries"
        Contains "contains" ("list, value") "whether an entry equals `value`"
        IndexOf "index_of" ("list, value") "position of the first entry equal to `value`"
        Increasing "increasing" ("list") "whether every entry is larger than the one before"
        All "all" ("conditions") "whether every one holds"
        Any "any" ("conditions") "whether one holds"
        Maximum "maximum" ("a, b") "the larger, entry by entry"
        Minimum "minimum" ("a, b") "the smaller, entry by entry"
        CeilDiv "ceil_div" ("a, b") "quotient rounded up, entry by entry"
        NormalAxis "normal_axis" ("axis, rank") "a negative axis counted from the end"
        NormalAxes "normal_axes" ("axes, rank") "sorted axes, negative ones counted from the end"
        ReshapeTarget "reshape_target" ("shape, spec, allowzero")
            "ONNX Reshape's target: 0 copies an extent, -1 is the rest"
        BroadcastShapes "broadcast_shapes" ("a, b") "NumPy's common shape"
        SplitSizes "split_sizes" ("n, parts") "ONNX Split's sizes: equal but for the last"
        FirstIf "first_if" ("condition, a, b") "`a` if the condition is known to hold, else `b`"
        IsKnown "is_known" ("n") "whether the integer is a number, without symbols"
        Float "float" ("n") "the integer as a real number"
        Int "int" ("x") "the real number cut towards zero"
        Abs "abs" ("x") "absolute value"
        Sqrt "sqrt" ("x") "square root"
        Rsqrt "rsqrt" ("x") "one over the square root"
        Recip "recip" ("x") "one over the number"
        Exp "exp" ("x") "exponential"
        Log "log" ("x") "natural logarithm"
        Floor "floor" ("x") "largest integer not above, as a real number"
        IsFloat "is_float" ("dtype") "whether it is a type of real numbers"
        Without "without" ("list, value") "the entries that differ from `value`"
        ReplaceAll "replace_all" ("list, positions, values") "the list with the entries at these positions changed"
        NormalList "normal_list" ("axes, rank") "axes in their order, negative ones counted from the end"
        Strides "strides" ("shape") "how far apart neighbours along each axis lie, in elements"
        UnitAxes "unit_axes" ("from, to") "where `to` has entries of 1 that `from` lacks; an error if more differs"
        ReshapeSpec "reshape_spec" ("from, to")
            "ONNX Reshape's target with 0 for a copied symbol and -1 for one that is left; an error if more are"
        ReshapeRest "reshape_rest" ("from, spec")
            "the product of the extents beside the -1 of a target of ONNX's Reshape; 1 if it has none"
        ReshapeNonzero "reshape_nonzero" ("from, to")
            "what must not be 0, lest a computed extent of a target of ONNX's Reshape be a 0 that copies another one"
        FlattenAxis "flatten_axis" ("from, to") "the axis before which ONNX's Flatten cuts; an error if `to` is no such shape"
        ExpandSpec "expand_spec" ("from, to") "ONNX Expand's target: 1 where the operand has the extent already"
        SliceStart "slice_start" ("shape, start, step") "ONNX Slice's first index of each axis"
        SliceSize "slice_size" ("shape, start, end, step") "ONNX Slice's number of elements of each axis"
        SliceStarts "slice_starts" ("shape, start, size, step") "ONNX Slice's `starts` for these first indices and sizes"
        SliceEnds "slice_ends" ("shape, start, size, step") "ONNX Slice's `ends` that belong to `slice_starts`"
        ChangedAxes "changed_axes" ("shape, start, size") "the axes of which a slice takes only a part"
        SamePads "same_pads" ("size, reach, stride")
            "padding in all that makes the result the size over the stride, rounded up"
        CeilPads "ceil_pads" ("size, low, high, reach, stride") "padding behind that lets the last window begin inside"
        Labels "labels" ("equation, i, ranks")
            "the labels of operand `i` of an einsum (or of its result) as numbers, `...` as negative ones"
        WordPlaces "word_places" ("words, known")
            "where words stand among others, -1 where they do not; both are separated by commas"
        Common "common" ("a, b") "the entries of `a` that `b` has"
        Except "except" ("a, b, …") "the entries of `a` that all the others lack"
        Places "places" ("list, entries") "where the entries stand in the list"
        IsAround "is_around" ("whole, start, size, to")
            "whether a reshape to `to` of a slice of a tensor of shape `whole` is a slice of its reshape"
        AroundShape "around_shape" ("whole, start, size, to") "the shape of that reshape"
        AroundStart "around_start" ("whole, start, size, to") "where that slice begins"
        IsSpread "is_spread" ("from, to, map, shape")
            "whether a broadcast of a reshape is a reshape of a broadcast, block by block of its axes"
        SpreadMap "spread_map" ("from, to, map, shape") "the places of that broadcast"
        SpreadShape "spread_shape" ("from, to, map, shape") "its shape"
        IsBox "is_box" ("from, to, start, size") "whether this box of a reshape is a box of the tensor before it"
        BoxStart "box_start" ("from, to, start, size") "where that box begins"
        BoxSize "box_size" ("from, to, start, size") "the extents of that box"
        ExactQuotient "exact_quotient" ("a, b") "quotients without remainder, entry by entry"
    }
    elements: {
        Ceil "ceil"
        Round "round"
        Sign "sign"
        Erf "erf"
        Sin "sin"
        Cos "cos"
        Tan "tan"
        Asin "asin"
        Acos "acos"
        Atan "atan"
        Sinh "sinh"
        Cosh "cosh"
        Tanh "tanh"
        Asinh "asinh"
        Acosh "acosh"
        Atanh "atanh"
        Modulo "modulo"
        Remainder "remainder"
        BitAnd "bit_and"
        BitOr "bit_or"
        BitXor "bit_xor"
        ShiftLeft "shift_left"
        ShiftRight "shift_right"
        Cast "cast"
        Exact "exact"
        Ravel "ravel"
        Unravel "unravel"
        At "at"
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
