//! Elements of a large XML document, one at a time.
//!
//! Nothing outside the document is ever read: a document type declaration, the only place where entities can be
//! declared, is refused, and so is every entity XML itself does not know.

use std::io::{BufReader, Read};

use quick_xml::errors::Error;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, Writer, XmlVersion};

use super::{Cut, Rows, RowsError};

/// No element comes near this; a larger one is a mistake or an attack.
const ELEMENT_LEN_MAX: usize = 16 << 20;
/// Real documents nest some twenty deep.
pub(crate) const DEPTH_MAX: usize = 200;

/// What to look for in a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The element that holds the items, wherever it stands; it may be an item itself.
    pub(crate) root: &'static str,
    /// The items. Where one stands inside another, it is taken out of it.
    pub(crate) items: &'static [&'static str],
    /// What such a document is, for people.
    pub(crate) what: &'static str,
}

/// Reads items as `<item key="value" within="Group" parent="id">the element</item>`, inner ones first; what is known of all of them
/// stands in the attributes of the wrapping.
pub(crate) struct XmlItems<R> {
    reader: Reader<BufReader<R>>,
    buffer: Vec<u8>,
    layout: Layout,
    context: Vec<(&'static str, String)>,
    open: Vec<Open>,
    depth: usize,
    /// How deep the root stands, while we are in it.
    root: Option<usize>,
    seen_root: bool,
    first: bool,
}

/// An item whose end has not come yet.
struct Open {
    writer: Writer<Vec<u8>>,
    depth: usize,
    name: String,
    id: String,
}

impl<R: Read> XmlItems<R> {
    pub(crate) fn new(input: R, layout: Layout, context: Vec<(&'static str, String)>) -> Self {
        Self {
            reader: Reader::from_reader(BufReader::with_capacity(256 << 10, input)),
            buffer: Vec::new(),
            layout,
            context,
            open: Vec::new(),
            depth: 0,
            root: None,
            seen_root: false,
            first: true,
        }
    }

    /// The next item; `None` after the end of the document.
    fn next_item(&mut self) -> Result<Option<Vec<u8>>, RowsError> {
        loop {
            self.buffer.clear();
            let mut buffer = std::mem::take(&mut self.buffer);
            let step = match self.reader.read_event_into(&mut buffer) {
                Ok(Event::Eof) => return self.end(),
                Ok(event) => self.take(event),
                Err(error) => return Err(self.cut(error)),
            };
            self.buffer = buffer;
            if let Some(raw) = step? {
                return Ok(Some(raw));
            }
        }
    }

    fn end(&self) -> Result<Option<Vec<u8>>, RowsError> {
        if self.depth > 0 {
            return Err(self.syntax("the document ends in the middle of an element"));
        }
        if !self.seen_root {
            let (what, root) = (self.layout.what, self.layout.root);
            return Err(RowsError::Format(format!("not {what}: there is no <{root}> in it")));
        }
        Ok(None)
    }

    fn take(&mut self, event: Event<'_>) -> Result<Option<Vec<u8>>, RowsError> {
        match event {
            Event::DocType(_) => Err(RowsError::Format(
                "it has a document type declaration, which could name other files: refused".to_owned(),
            )),
            Event::Start(start) => {
                self.enter(&start)?;
                self.write(Event::Start(start))?;
                Ok(None)
            }
            Event::Empty(start) => {
                self.enter(&start)?;
                self.write(Event::Empty(start))?;
                self.leave()
            }
            Event::End(end) => {
                self.write(Event::End(end))?;
                self.leave()
            }
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) => Ok(None),
            Event::Text(text) if self.first && self.depth == 0 && !text.trim().is_empty() => {
                let what = self.layout.what;
                Err(RowsError::Format(format!("not {what}: it does not begin with an element")))
            }
            other => {
                self.write(other)?;
                Ok(None)
            }
        }
    }

    fn enter(&mut self, start: &BytesStart<'_>) -> Result<(), RowsError> {
        self.first = false;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.syntax("elements stand more than 200 deep in each other"));
        }
        let name = start.local_name();
        if self.root.is_none() && name.as_ref() == self.layout.root {
            self.root = Some(self.depth);
            self.seen_root = true;
        }
        if self.root.is_some() && self.layout.items.contains(&name.as_ref()) {
            let id = ["id", "ID", "Reference_ID"].iter().find_map(|key| attribute(start, key));
            let id = id.unwrap_or_default();
            let name = name.as_ref().to_owned();
            self.open.push(Open { writer: Writer::new(Vec::new()), depth: self.depth, name, id });
        }
        Ok(())
    }

    /// Goes out of an element; the item, where it was one.
    fn leave(&mut self) -> Result<Option<Vec<u8>>, RowsError> {
        let depth = self.depth;
        self.depth = depth.saturating_sub(1);
        if self.root == Some(depth) {
            self.root = None;
        }
        let Some(item) = self.open.pop_if(|open| open.depth == depth) else { return Ok(None) };
        let mut start = BytesStart::new("item");
        for (key, value) in &self.context {
            start.push_attribute((*key, value.as_str()));
        }
        if let Some(parent) = self.open.last() {
            start.push_attribute(("within", parent.name.as_str()));
            start.push_attribute(("parent", parent.id.as_str()));
        }
        let mut whole = Writer::new(Vec::new());
        let wrapped = whole.write_event(Event::Start(start.borrow()));
        wrapped.map_err(|error| self.io(error))?;
        let mut raw = whole.into_inner();
        raw.extend_from_slice(&item.writer.into_inner());
        raw.extend_from_slice(b"</item>");
        Ok(Some(raw))
    }

    fn write(&mut self, event: Event<'_>) -> Result<(), RowsError> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        let written = open.writer.write_event(event);
        let len = open.writer.get_mut().len();
        written.map_err(|error| self.io(error))?;
        if len > ELEMENT_LEN_MAX { Err(self.syntax("an element has more than 16 MiB")) } else { Ok(()) }
    }

    fn cut(&self, error: Error) -> RowsError {
        match error {
            Error::Io(error) => self.io(std::io::Error::new(error.kind(), error.to_string())),
            error => RowsError::Cut(Cut::Io { at: self.at(), error: std::io::Error::other(error) }),
        }
    }

    fn io(&self, error: std::io::Error) -> RowsError {
        RowsError::Cut(Cut::Io { at: self.at(), error })
    }

    fn syntax(&self, what: &'static str) -> RowsError {
        RowsError::Cut(Cut::Syntax { at: self.at(), what })
    }

    fn at(&self) -> u64 {
        self.reader.buffer_position()
    }
}

impl<R: Read + Send> Rows for XmlItems<R> {
    fn next_row(&mut self) -> Result<Option<Vec<u8>>, RowsError> {
        self.next_item()
    }

    fn declared(&self) -> Option<u64> {
        None
    }
}

/// The value of an attribute, where there is one that can be read.
pub(crate) fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = start.attributes().flatten().find(|one| one.key.as_ref() == name)?;
    found.normalized_value(XmlVersion::Explicit1_0).ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { root: "Book", items: &["Book", "Part"], what: "a book" };

    fn items(text: &str) -> Result<Vec<String>, RowsError> {
        let mut items = XmlItems::new(text.as_bytes(), LAYOUT, vec![("product", "x<y".to_owned())]);
        let mut all = Vec::new();
        while let Some(raw) = items.next_item()? {
            all.push(String::from_utf8(raw).expect("what was text is text"));
        }
        Ok(all)
    }

    #[test]
    fn inner_items_come_first_and_are_not_part_of_the_outer_ones() {
        let text = r#"<all><Part id="0"/><b:Book id="a"><t>T&amp;</t><Part id="p"><Part id="q"/></Part></b:Book></all>"#;
        assert_eq!(
            items(text).unwrap(),
            [
                r#"<item product="x&lt;y" within="Part" parent="p"><Part id="q"/></item>"#,
                r#"<item product="x&lt;y" within="Book" parent="a"><Part id="p"></Part></item>"#,
                r#"<item product="x&lt;y"><b:Book id="a"><t>T&amp;</t></b:Book></item>"#,
            ]
        );
    }

    #[test]
    fn a_document_that_is_cut_or_too_deep_is_not_read_to_an_end() {
        for text in ["<Book><Part>", "<Book><Part></Book>", "<Book", &"<Book>".repeat(DEPTH_MAX + 1)] {
            assert!(matches!(items(text), Err(RowsError::Cut(_))), "{text}");
        }
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        for text in ["", "plain text", "<html></html>"] {
            let refused = items(text).unwrap_err().to_string();
            assert!(refused.starts_with("not a book"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_document_type_declaration_is_refused() {
        let text =
            r#"<!DOCTYPE Book [<!ENTITY secret SYSTEM "file:///etc/passwd">]><Book><t>&secret;</t></Book>"#;
        assert!(items(text).unwrap_err().to_string().contains("document type declaration"));
    }
}
