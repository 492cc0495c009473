//! Iterators over a tree: children, descendants, everything.

use super::cursor::Cursor;
use super::znode::Znode;
use super::{Tree, key};

/// The children of one znode, in the tree's order. Made by [`Tree::children`].
pub struct Children<'a> {
    cursor: Cursor<'a, Znode>,
    last_key: u64,
    /// The first child; its siblings share its parent. `None` when there is none.
    first: Option<&'a Znode>,
}

impl<'a> Children<'a> {
    pub(super) fn new(tree: &'a Tree, parent: &str) -> Self {
        let (first_key, last_key) = tree.keys.range(parent);
        let mut cursor = tree.nodes.cursor(first_key);
        // Another parent's children may have the same keys.
        while let Some((key, znode)) = cursor.peek()
            && key <= last_key
        {
            if znode.is_child_of(parent) {
                return Self { cursor, last_key, first: Some(znode) };
            }
            cursor.next();
        }
        Self { cursor, last_key, first: None }
    }

    /// The next child without its name. That costs half as much, since the name is in another cache line and
    /// has to be checked for UTF-8.
    fn next_znode(&mut self) -> Option<&'a Znode> {
        let first = self.first?;
        loop {
            let (key, znode) = self.cursor.next()?;
            if key > self.last_key {
                self.first = None;
                return None;
            }
            if znode.is_sibling_of(first) {
                return Some(znode);
            }
        }
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = (&'a str, &'a Znode);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_znode().map(|znode| (znode.name(), znode))
    }
}

/// Everything below one znode, each parent before its children. Made by [`Tree::descendants`].
pub struct Descendants<'a> {
    tree: &'a Tree,
    /// The directories on the way down, on a stack of its own, since clients choose the depth of paths.
    open: Vec<Children<'a>>,
    path: String,
}

impl<'a> Descendants<'a> {
    pub(super) fn new(tree: &'a Tree, path: &str) -> Self {
        Self { tree, open: vec![tree.children(path)], path: String::new() }
    }
}

impl<'a> Iterator for Descendants<'a> {
    type Item = &'a Znode;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(znode) = self.open.last_mut()?.next_znode() else {
                self.open.pop();
                continue;
            };
            if znode.num_children() > 0 {
                key::join(znode.parent_path(), znode.name(), &mut self.path);
                self.open.push(self.tree.children(&self.path));
            }
            return Some(znode);
        }
    }
}

/// Every znode in the tree's order. Made by [`Tree::nodes`].
pub struct Nodes<'a> {
    cursor: Cursor<'a, Znode>,
    remaining: usize,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(tree: &'a Tree) -> Self {
        Self { cursor: tree.nodes.cursor(0), remaining: tree.len() }
    }
}

impl<'a> Iterator for Nodes<'a> {
    type Item = &'a Znode;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, znode) = self.cursor.next()?;
        self.remaining -= 1;
        Some(znode)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Nodes<'_> {}
