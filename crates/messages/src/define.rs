//! The macro behind every subject.

/// Defines the messages of a subject:
///
/// ```ignore
/// messages! {
///     "vm" 0x300;
///     /// Who sends it when, and who answers.
///     fault: Fault {
///         /// What the receiver must know of the field.
///         space: SpaceId,
///         /// The same.
///         page: Page,
///     } -> FaultReply, Low;
/// }
/// ```
///
/// `fault` is the name in counters and traces, `Fault` the struct, `FaultReply` any serde type written
/// out beside the block, `Low` or `High` the lane. The message and each of its fields must have a comment.
/// Append new messages at the end of a block only for tidiness: all kernels of a machine run the same image.
macro_rules! messages {
    (
        $subject:literal $base:literal;
        $(
            $(#[doc = $doc:literal])+
            $name:ident: $type:ident {
                $( $(#[doc = $field_doc:literal])+ $field:ident: $field_type:ty ),* $(,)?
            } -> $reply:ty, $priority:ident;
        )*
    ) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
            pub struct $type {
                $( $(#[doc = $field_doc])+ pub $field: $field_type, )*
            }

            impl $crate::Request for $type {
                type Reply = $reply;
                const KIND: $crate::MessageKind = $crate::MessageKind($base + Position::$type as u16);
                const NAME: &'static str = stringify!($name);
                const PRIORITY: $crate::Priority = $crate::Priority::$priority;
            }
        )*

        // A subject may still be empty; names repeat their subject, since other crates use them bare.
        #[allow(dead_code, clippy::enum_variant_names)]
        enum Position { $($type,)* }

        /// The messages of this module, in the order of their kinds.
        pub const SUBJECT: $crate::Subject = $crate::Subject {
            name: $subject,
            base: $base,
            messages: &[$(
                $crate::MessageInfo {
                    kind: <$type as $crate::Request>::KIND,
                    name: stringify!($name),
                    priority: $crate::Priority::$priority,
                },
            )*],
        };

        /// What the table in `docs/` says of each.
        pub(crate) const TEXTS: &[$crate::Texts] = &[$(
            $crate::Texts {
                type_name: stringify!($type),
                fields: &[$((stringify!($field), stringify!($field_type))),*],
                reply: stringify!($reply),
                doc: concat!($($doc),+),
            },
        )*];
    };
}
