//! A small reader of BTF: names of typedefs, and byte offsets of structure members.
//!
//! Format: `Documentation/bpf/btf.rst` and `include/uapi/linux/btf.h` of the kernel. Read in place, nothing is copied.

use std::collections::HashSet;

use anyhow::{Result, bail, ensure};

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;

const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
/// Kinds that only qualify the type they name: volatile, const, restrict, type tag.
const QUALIFIERS: [u32; 4] = [9, 10, 11, 18];

/// BTF that was found whole.
pub struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type stands; the first is type 1.
    types: Vec<usize>,
    /// Where the structures among them stand.
    structures: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    members: usize,
    has_bitfields: bool,
    /// Type it refers to, for kinds that do.
    target: u32,
    /// Where what follows the head stands.
    tail: usize,
}

impl Btf {
    /// Checks the header and finds every type.
    pub fn parse(bytes: Vec<u8>) -> Result<Self> {
        ensure!(bytes.len() >= HEADER_BYTES, "it is shorter than a header");
        ensure!(
            u16::from_ne_bytes([bytes[0], bytes[1]]) == MAGIC,
            "it does not begin like BTF of this machine"
        );
        let word = |at: usize| word(&bytes, at).map(|word| word as usize);
        let header = word(4)?;
        let (types_from, types_len) = (header + word(8)?, word(12)?);
        let (strings, strings_len) = (header + word(16)?, word(20)?);
        ensure!(
            types_from + types_len <= bytes.len() && strings + strings_len <= bytes.len(),
            "it is cut short: {} bytes",
            bytes.len()
        );
        let mut btf = Self { bytes, strings, types: Vec::new(), structures: Vec::new() };
        let mut at = types_from;
        while at < types_from + types_len {
            btf.types.push(at);
            if btf.at(at).is_some_and(|found| found.kind == KIND_STRUCT) {
                btf.structures.push(at);
            }
            at += TYPE_BYTES + btf.tail_bytes(at)?;
        }
        Ok(btf)
    }

    /// Names of all typedefs.
    pub fn typedefs(&self) -> HashSet<&str> {
        let types = self.types.iter().filter_map(|&at| self.at(at));
        types.filter(|found| found.kind == KIND_TYPEDEF).filter_map(|found| self.name(found.name)).collect()
    }

    /// Byte offset of a member, searched through unnamed structures and unions; `None`: there is no such member.
    pub fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        let structures = self.structures.iter().filter_map(|&at| self.at(at));
        structures
            .filter(|found| self.name(found.name) == Some(structure))
            .find_map(|found| self.member_bits(found, member))
            .map(|bits| bits / 8)
    }

    fn member_bits(&self, structure: Type, wanted: &str) -> Option<u32> {
        (0..structure.members).find_map(|index| {
            let at = structure.tail + index * MEMBER_BYTES;
            let (name, target) = (word(&self.bytes, at).ok()?, word(&self.bytes, at + 4).ok()?);
            let offset = word(&self.bytes, at + 8).ok()?;
            // With bit fields in the structure, the upper eight bits hold the field's width.
            let bits = if structure.has_bitfields { offset & 0xff_ffff } else { offset };
            match self.name(name)? {
                "" => self.member_bits(self.unqualified(target)?, wanted).map(|inner| inner + bits),
                name => (name == wanted).then_some(bits),
            }
        })
    }

    /// The structure or union a type is, under its qualifiers.
    fn unqualified(&self, id: u32) -> Option<Type> {
        let found = self.at(*self.types.get((id as usize).checked_sub(1)?)?)?;
        match found.kind {
            KIND_STRUCT | KIND_UNION => Some(found),
            kind if QUALIFIERS.contains(&kind) => self.unqualified(found.target),
            _ => None,
        }
    }

    fn at(&self, at: usize) -> Option<Type> {
        let info = word(&self.bytes, at + 4).ok()?;
        Some(Type {
            name: word(&self.bytes, at).ok()?,
            kind: info >> 24 & 0x1f,
            members: (info & 0xffff) as usize,
            has_bitfields: info >> 31 == 1,
            target: word(&self.bytes, at + 8).ok()?,
            tail: at + TYPE_BYTES,
        })
    }

    /// Bytes that follow a type's head.
    fn tail_bytes(&self, at: usize) -> Result<usize> {
        let info = word(&self.bytes, at + 4)?;
        let members = (info & 0xffff) as usize;
        Ok(match info >> 24 & 0x1f {
            1 | 14 | 17 => 4,                                   // int, var, decl tag
            3 => 12,                                            // array
            KIND_STRUCT | KIND_UNION | 15 | 19 => members * 12, // and datasec, enum64
            6 | 13 => members * 8,                              // enum, function prototype
            2 | 7..=12 | 16 | 18 => 0, // pointer, forward, typedef, qualifiers, function, float
            kind => bail!("it holds a type of kind {kind}, which this version of tracer does not know"),
        })
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let rest = self.bytes.get(self.strings + offset as usize..)?;
        std::str::from_utf8(&rest[..rest.iter().position(|&byte| byte == 0)?]).ok()
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => Ok(u32::from_ne_bytes([a, b, c, d])),
        _ => bail!("it is cut short: {} bytes", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { int first; union { int inner; }; }` and `typedef int named;`
    fn example() -> Vec<u8> {
        let strings = b"\0outer\0first\0inner\0named\0int\0";
        let at = |name: &str| {
            let with_end = [name.as_bytes(), b"\0"].concat();
            strings.windows(with_end.len()).position(|window| window == with_end).unwrap() as u32
        };
        let types = [
            [at("int"), 1 << 24, 4].as_slice(),
            &[32],
            &[0, KIND_UNION << 24 | 1, 4],
            &[at("inner"), 1, 0],
            &[at("outer"), KIND_STRUCT << 24 | 2, 8],
            &[at("first"), 1, 0, 0, 2, 32],
            &[at("named"), KIND_TYPEDEF << 24, 1],
        ]
        .concat();
        let types_len = types.len() as u32 * 4;
        let header = [24, 0, types_len, types_len, strings.len() as u32];
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend(header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_are_found_also_in_unnamed_unions() {
        let btf = Btf::parse(example()).unwrap();
        assert_eq!(btf.member_offset("outer", "first"), Some(0));
        assert_eq!(btf.member_offset("outer", "inner"), Some(4));
        assert_eq!(btf.member_offset("outer", "other"), None);
        assert_eq!(btf.member_offset("nobody", "first"), None);
        assert!(btf.typedefs().contains("named"));
    }

    #[test]
    fn cut_short_at_any_byte_it_is_refused_and_never_panics() {
        let whole = example();
        for len in 0..whole.len() {
            assert!(Btf::parse(whole[..len].to_vec()).is_err(), "{len}");
        }
    }
}
