//! The kinds of columns: how a field of a [`Request`] becomes an Arrow array, and how it comes back.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::builder::{ListBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, StringArray};
use arrow_schema::{DataType, Field};

use super::{
    ClientTimes, DownstreamPeer, Grade, Inference, Request, WRITES_KEPT, syscall_name, syscall_number,
};

type ToArray = Box<dyn Fn(&mut [Request]) -> ArrayRef + Send>;
type FromArray = Box<dyn Fn(&mut [Request], &ArrayRef) -> Result<()> + Send>;

/// One column: what it is called, what it means, and how it is taken from requests and put back.
pub struct Column {
    /// Name, ending in the unit where it has one.
    pub name: String,
    /// What it holds, in words.
    pub meaning: String,
    pub(super) data_type: DataType,
    nullable: bool,
    pub(super) to_array: ToArray,
    pub(super) from_array: FromArray,
}

impl Column {
    /// `ns`, `bytes`, or empty for a plain count, name or id.
    pub fn unit(&self) -> &'static str {
        match self.name.as_str() {
            name if name.ends_with("_ns") => "ns",
            name if name.contains("bytes_") => "bytes",
            _ => "",
        }
    }

    pub(super) fn field(&self) -> Field {
        let metadata = HashMap::from([
            ("unit".to_owned(), self.unit().to_owned()),
            ("meaning".to_owned(), self.meaning.clone()),
        ]);
        Field::new(&self.name, self.data_type.clone(), self.nullable).with_metadata(metadata)
    }
}

fn column(
    (name, meaning): (impl Into<String>, impl Into<String>),
    (data_type, nullable): (DataType, bool),
    to_array: impl Fn(&mut [Request]) -> ArrayRef + Send + 'static,
    from_array: impl Fn(&mut [Request], &ArrayRef) -> Result<()> + Send + 'static,
) -> Column {
    Column {
        name: name.into(),
        meaning: meaning.into(),
        data_type,
        nullable,
        to_array: Box::new(to_array),
        from_array: Box::new(from_array),
    }
}

pub(super) fn number<T: ArrowPrimitiveType>(
    name: impl Into<String>,
    meaning: impl Into<String>,
    field: impl Fn(&mut Request) -> &mut T::Native + Clone + Send + 'static,
) -> Column {
    let field_to_set = field.clone();
    column(
        (name, meaning),
        (T::DATA_TYPE, false),
        move |requests| {
            let values = requests.iter_mut().map(|request| *field(request));
            Arc::new(PrimitiveArray::<T>::from_iter_values(values))
        },
        move |requests, array| {
            for (request, value) in requests.iter_mut().zip(array.as_primitive::<T>().values()) {
                *field_to_set(request) = *value;
            }
            Ok(())
        },
    )
}

pub(super) fn nanoseconds(
    name: impl Into<String>,
    meaning: impl Into<String>,
    field: impl Fn(&mut Request) -> &mut u64 + Clone + Send + 'static,
) -> Column {
    number::<UInt64Type>(name, meaning, field)
}

pub(super) fn text(name: &str, meaning: &str, field: fn(&mut Request) -> &mut Arc<str>) -> Column {
    column(
        (name, meaning),
        (DataType::Utf8, false),
        move |requests| {
            let values = requests.iter_mut().map(|request| &**field(request));
            Arc::new(StringArray::from_iter_values(values))
        },
        move |requests, array| {
            // Neighbours mostly hold the same text: share it.
            let mut last: Arc<str> = Arc::default();
            for (request, value) in requests.iter_mut().zip(array.as_string::<i32>()) {
                let value = value.context("a null")?;
                if *last != *value {
                    last = value.into();
                }
                *field(request) = Arc::clone(&last);
            }
            Ok(())
        },
    )
}

pub(super) fn grade() -> Column {
    column(
        ("grade", "weakest grade among its edges: measured, probed or inferred"),
        (DataType::Utf8, false),
        |requests| {
            let keys = requests.iter().map(|request| request.grade.key());
            Arc::new(StringArray::from_iter_values(keys))
        },
        |requests, array| {
            for (request, key) in requests.iter_mut().zip(array.as_string::<i32>()) {
                let known = Grade::ALL.into_iter().find(|grade| Some(grade.key()) == key);
                request.grade = known.with_context(|| format!("unknown grade {key:?}"))?;
            }
            Ok(())
        },
    )
}

pub(super) fn inference() -> Column {
    column(
        ("inference", "the first rule that stands in for an edge nobody saw; null: every edge was seen"),
        (DataType::Utf8, true),
        |requests| {
            let keys = requests.iter().map(|request| request.inference.map(Inference::key));
            Arc::new(StringArray::from_iter(keys))
        },
        |requests, array| {
            for (request, key) in requests.iter_mut().zip(array.as_string::<i32>()) {
                let Some(key) = key else { continue };
                let known = Inference::ALL.into_iter().find(|inference| inference.key() == key);
                request.inference = Some(known.with_context(|| format!("unknown inference {key:?}"))?);
            }
            Ok(())
        },
    )
}

pub(super) fn client(name: &str, meaning: &str, field: fn(&mut ClientTimes) -> &mut u64) -> Column {
    column(
        (name, format!("{meaning}; null: not sent by our driver")),
        (DataType::UInt64, true),
        move |requests| {
            let times = requests.iter_mut().map(|r| r.client.as_mut().map(|c| *field(c)));
            Arc::new(PrimitiveArray::<UInt64Type>::from_iter(times))
        },
        move |requests, array| {
            for (request, value) in requests.iter_mut().zip(array.as_primitive::<UInt64Type>()) {
                if let Some(value) = value {
                    *field(request.client.get_or_insert_default()) = value;
                }
            }
            Ok(())
        },
    )
}

pub(super) fn blocked_call() -> Column {
    column(
        ("blocked_call", "syscall its thread blocked in during app; null: none"),
        (DataType::Utf8, true),
        |requests| {
            let names =
                requests.iter().map(|request| request.blocked_call_plus_one.checked_sub(1).map(syscall_name));
            Arc::new(StringArray::from_iter(names))
        },
        |requests, array| {
            for (request, name) in requests.iter_mut().zip(array.as_string::<i32>()) {
                if let Some(name) = name {
                    request.blocked_call_plus_one = call_number(name)? + 1;
                }
            }
            Ok(())
        },
    )
}

fn call_number(name: &str) -> Result<u32> {
    syscall_number(name).with_context(|| format!("unknown syscall {name:?}"))
}

pub(super) fn write_names() -> Column {
    column(
        ("write_calls", "syscall of each of the first 8 write calls, failed ones included"),
        (list_of(DataType::Utf8), false),
        |requests| {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for request in requests.iter() {
                let names = request.kept_writes().iter().map(|w| Some(syscall_name(w.call.into())));
                lists.append_value(names);
            }
            Arc::new(lists.finish())
        },
        |requests, array| {
            for (request, names) in requests.iter_mut().zip(array.as_list::<i32>().iter()) {
                let names = names.context("a null")?;
                ensure!(names.len() <= WRITES_KEPT, "more than {WRITES_KEPT} write calls");
                request.write_calls_len = names.len() as u8;
                for (write, name) in request.write_calls.iter_mut().zip(names.as_string::<i32>()) {
                    write.call = call_number(name.context("a null")?)?.try_into()?;
                }
            }
            Ok(())
        },
    )
}

/// A list for each request: one number of each of its items, whose names came in an earlier column.
pub(super) fn numbers<T: ArrowPrimitiveType, Item: 'static>(
    name: &str,
    meaning: &str,
    items: fn(&mut Request) -> &mut [Item],
    field: fn(&mut Item) -> &mut T::Native,
) -> Column {
    column(
        (name, meaning),
        (list_of(T::DATA_TYPE), false),
        move |requests| {
            let mut lists = ListBuilder::new(PrimitiveBuilder::<T>::new());
            for request in requests {
                lists.append_value(items(request).iter_mut().map(|item| Some(*field(item))));
            }
            Arc::new(lists.finish())
        },
        move |requests, array| {
            for (request, values) in requests.iter_mut().zip(array.as_list::<i32>().iter()) {
                let values = values.context("a null")?;
                for (item, value) in items(request).iter_mut().zip(values.as_primitive::<T>().values()) {
                    *field(item) = *value;
                }
            }
            Ok(())
        },
    )
}

/// The names of the peers.
pub(super) fn downstream_peers() -> Column {
    column(
        ("downstream_peers", "peers its server asked for it, on connections the server opened"),
        (list_of(DataType::Utf8), false),
        |requests| {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for request in requests.iter() {
                lists.append_value(request.downstream.iter().map(|peer| Some(&*peer.peer)));
            }
            Arc::new(lists.finish())
        },
        |requests, array| {
            for (request, peers) in requests.iter_mut().zip(array.as_list::<i32>().iter()) {
                let peers = peers.context("a null")?;
                for peer in peers.as_string::<i32>() {
                    let peer = peer.context("a null")?.into();
                    request.downstream.push(DownstreamPeer { peer, ..DownstreamPeer::default() });
                }
            }
            Ok(())
        },
    )
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}
