//! One XML element as a tree, as providers look at it.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::record::Reject;
use crate::source::DEPTH_MAX;

/// An element. Prefixes of names are left out: what they stand for is clear where we look.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    attributes: Vec<(String, String)>,
    content: Vec<Content>,
}

#[derive(Debug)]
enum Content {
    Element(Element),
    Text(String),
}

/// After these a new line begins.
const BLOCKS: [&str; 12] =
    ["p", "div", "br", "li", "ul", "ol", "pre", "tr", "table", "Description", "h1", "h2"];

impl Element {
    /// Reads one element and nothing else.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, Reject> {
        let text = std::str::from_utf8(raw).map_err(Reject::new)?;
        let mut reader = Reader::from_str(text);
        let mut open: Vec<Self> = vec![Self::default()];
        loop {
            let event = reader.read_event().map_err(Reject::new)?;
            let Some(last) = open.last_mut() else { return Err(Reject("there is no element".to_owned())) };
            match event {
                Event::Start(start) => {
                    let element = Self::begin(&start)?;
                    open.push(element);
                    if open.len() > DEPTH_MAX + 8 {
                        return Err(Reject("elements stand too deep in each other".to_owned()));
                    }
                }
                Event::Empty(start) => last.content.push(Content::Element(Self::begin(&start)?)),
                Event::End(_) => {
                    let Some(done) = open.pop() else { break };
                    let Some(outer) = open.last_mut() else { break };
                    outer.content.push(Content::Element(done));
                }
                Event::Text(text) => last.content.push(Content::Text(text.xml10_content().into_owned())),
                Event::CData(text) => last.content.push(Content::Text(text.xml10_content().into_owned())),
                Event::GeneralRef(reference) => last.content.push(Content::Text(resolve(&reference)?)),
                Event::DocType(_) => return Err(Reject("it has a document type declaration".to_owned())),
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        let root = open.pop().filter(|_| open.is_empty());
        let whole = root.and_then(|mut root| match root.content.pop() {
            Some(Content::Element(element)) => Some(element),
            _ => None,
        });
        whole.ok_or_else(|| Reject("it is not one whole element".to_owned()))
    }

    fn begin(start: &BytesStart<'_>) -> Result<Self, Reject> {
        let mut attributes = Vec::new();
        for one in start.attributes() {
            let one = one.map_err(Reject::new)?;
            let value = one.normalized_value(XmlVersion::Explicit1_0).map_err(Reject::new)?.into_owned();
            attributes.push((one.key.local_name().as_ref().to_owned(), value));
        }
        Ok(Self { name: start.local_name().as_ref().to_owned(), attributes, content: Vec::new() })
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The attribute, or why there is no record.
    pub(super) fn required(&self, name: &str) -> Result<&str, Reject> {
        self.attribute(name).ok_or_else(|| Reject(format!("<{}> has no {name}", self.name)))
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = &Self> {
        self.content.iter().filter_map(|one| match one {
            Content::Element(element) => Some(element),
            Content::Text(_) => None,
        })
    }

    pub(super) fn children<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.elements().filter(move |element| element.name == name)
    }

    pub(super) fn child<'a>(&'a self, name: &'a str) -> Option<&'a Self> {
        self.children(name).next()
    }

    /// The elements `inner` in all `outer`.
    pub(super) fn list<'a>(&'a self, outer: &'a str, inner: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children(outer).flat_map(move |list| list.children(inner))
    }

    /// The text of the element `name`, where there is some.
    pub(super) fn text_of(&self, name: &str) -> Option<String> {
        self.child(name).map(Self::text).filter(|text| !text.is_empty())
    }

    /// Every text in it, one blank between words, a line for each paragraph.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.collect(&mut text);
        let lines = text.split('\u{1}').map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn collect(&self, text: &mut String) {
        for one in &self.content {
            match one {
                Content::Text(more) => text.push_str(more),
                Content::Element(element) => {
                    let is_block = BLOCKS.contains(&element.name.as_str());
                    if is_block {
                        text.push('\u{1}');
                    }
                    element.collect(text);
                    if is_block {
                        text.push('\u{1}');
                    }
                }
            }
        }
    }
}

/// What `&…;` stands for: a character by number, or one of the five entities XML knows.
fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Result<String, Reject> {
    if let Some(one) = reference.resolve_char_ref().map_err(Reject::new)? {
        return Ok(one.to_string());
    }
    let name = reference.xml10_content();
    match quick_xml::escape::resolve_xml_entity(&name) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Reject(format!("it names the entity `{name}`, which XML does not know"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_its_paragraphs_and_nothing_else_of_the_markup() {
        let element =
            Element::parse(b"<a>  one\n <b>two</b>&amp;&#65; <x:p>three</x:p><x:br/>four<![CDATA[<5>]]></a>")
                .unwrap();
        assert_eq!(element.text(), "one two&A\nthree\nfour<5>");
    }

    #[test]
    fn an_entity_nobody_declared_is_refused_in_text_and_in_attributes() {
        for text in ["<a>&secret;</a>", "<a b='&secret;'/>"] {
            assert!(Element::parse(text.as_bytes()).unwrap_err().0.contains("secret"), "{text}");
        }
    }

    #[test]
    fn what_is_not_one_whole_element_is_refused() {
        for text in ["", "text", "<a>", "<a></b>", "<a/><b>"] {
            assert!(Element::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
