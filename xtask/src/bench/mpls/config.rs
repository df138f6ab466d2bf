//! What the routers of a network are told: one configuration each, put together from what is done
//! with a label. Text in the product's own format comes out.

use testbed::network::address;

/// The configuration of a router, as it grows.
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) text: String,
    nodes: &'static [&'static str],
    ports: Vec<&'static str>,
}

impl Config {
    pub(super) fn new(nodes: &'static [&'static str], name: &'static str) -> Self {
        Self { name, text: String::new(), nodes, ports: Vec::new() }
    }

    /// Its core ports so far, which are called as the routers that they lead to.
    pub(super) fn ports(&self) -> &[&'static str] {
        &self.ports
    }

    fn port(&mut self, towards: &'static str) {
        if !self.ports.contains(&towards) {
            self.ports.push(towards);
            self.text += &format!("[[link]]\nethernet = \"{towards}\"\nmpls = true\n");
        }
    }

    /// By which port, to whom, and with which labels.
    fn way(&mut self, to: &'static str, labels: &[u32]) -> String {
        self.port(to);
        let hop = address(self.nodes, to, self.name);
        format!("link = \"{to}\"\nnext_hop = \"{hop}\"\nlabels = {labels:?}\n")
    }

    /// A packet that comes with a label goes on to a router with another.
    pub(super) fn swap(mut self, label: u32, to: &'static str, other: u32) -> Self {
        let way = self.way(to, &[other]);
        self.text += &format!("[[ilm]]\nlabel = {label}\n{way}");
        self
    }

    /// A tunnel ends here.
    pub(super) fn pop(mut self, label: u32, from: &'static str) -> Self {
        self.port(from);
        self.text += &format!("[[ilm]]\nlabel = {label}\npop = true\n");
        self
    }

    /// A path begins here.
    pub(super) fn lsp(mut self, name: &str, to: &'static str, label: u32) -> Self {
        let way = self.way(to, &[label]);
        self.text += &format!("[[lsp]]\nname = \"{name}\"\n{way}");
        self
    }

    /// A circuit with its pseudowire, which is called as its interface, and more keys of that.
    pub(super) fn wire(
        mut self,
        circuit: &str,
        [label_in, label_out]: [u32; 2],
        lsp: &str,
        more: &str,
    ) -> Self {
        self.text += &format!(
            "[[circuit]]\nethernet = \"{circuit}\"\n\
             [[pseudowire]]\nname = \"{circuit}\"\ncircuit = \"{circuit}\"\n\
             label_in = {label_in}\nlabel_out = {label_out}\nlsp = \"{lsp}\"\n{more}\n"
        );
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_said_once_and_comes_before_who_uses_it() {
        let config = Config::new(&["a", "b"], "a").swap(100, "b", 101).pop(102, "b");
        assert_eq!(config.ports(), ["b"]);
        assert_eq!(config.text.matches("[[link]]").count(), 1);
        assert!(config.text.contains("next_hop = \"02:00:00:00:02:01\"\nlabels = [101]"));
        let table: toml::Table = config.text.parse().unwrap();
        assert_eq!(table["ilm"].as_array().map(Vec::len), Some(2));
    }
}
