package fleetsim

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// providers is how many there are, each with a network of its own.
const providers = 3

// network is how providers' hosts and the control side reach each other.
type network interface {
	name() string
	// address is where the control side listens for hosts.
	address() string
	// agent gives the program and arguments that run an agent in a provider's network.
	agent(provider int, command []string) (program string, args []string)
	cut(provider int) error
	heal(provider int) error
}

// newNetwork takes network namespaces, or proxies when it is told to: behind these, requests are still lost when a hub starts
// anew, which knows no gateways yet and has hosts end their data links to them.
func newNetwork(t *testing.T) network {
	t.Helper()
	if os.Getenv("FLEETSIM_PROXY") == "" {
		n := &namespaces{prefix: fmt.Sprintf("mrf%d", os.Getpid()%100000), net: fmt.Sprintf("10.%d", 200+os.Getpid()%50)}
		err := n.make()
		t.Cleanup(n.remove)
		if err == nil {
			return n
		}
		n.remove()
		fmt.Fprintf(os.Stderr, "NO NETWORK NAMESPACES (%v): THE SIMULATED FLEET IS NOT TESTED. Run as root, or try FLEETSIM_PROXY=1.\n", err)
		t.Skip("no network namespaces: run as root")
	}
	p := &proxies{}
	for i := range p.each {
		if err := p.each[i].listen(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.each[i].ln.Close(); p.each[i].cut() })
	}
	return p
}

// namespaces are real networks: a provider is a namespace with one cable to the control side.
type namespaces struct{ prefix, net string }

func (n *namespaces) space(i int) string { return fmt.Sprintf("%s-%d", n.prefix, i) }

func ip(line string, args ...any) error {
	words := strings.Fields(fmt.Sprintf(line, args...))
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (n *namespaces) make() error {
	for i := range providers {
		ns := n.space(i)
		for _, line := range []string{
			"netns add " + ns,
			fmt.Sprintf("link add %sv%d type veth peer name eth0 netns %s", n.prefix, i, ns),
			fmt.Sprintf("addr add %s.%d.1/24 dev %sv%d", n.net, i+1, n.prefix, i),
			fmt.Sprintf("link set %sv%d up", n.prefix, i),
			"-n " + ns + " link set lo up",
			fmt.Sprintf("-n %s addr add %s.%d.2/24 dev eth0", ns, n.net, i+1),
		} {
			if err := ip("%s", line); err != nil {
				return err
			}
		}
		if err := n.heal(i); err != nil {
			return err
		}
	}
	return exec.Command("ip", "netns", "exec", n.space(0), "true").Run()
}

func (n *namespaces) remove() {
	for i := range providers {
		_ = ip("link del %sv%d", n.prefix, i)
		_ = ip("netns del %s", n.space(i))
	}
}

func (n *namespaces) name() string    { return "network namespaces" }
func (n *namespaces) address() string { return n.net + ".1.1" }

func (n *namespaces) agent(provider int, command []string) (string, []string) {
	return "ip", append(append([]string{"netns", "exec", n.space(provider)}, command...), "--data-listen", fmt.Sprintf("%s.%d.2:0", n.net, provider+1))
}

// cut pulls the cable on the provider's side: nobody is told that connections have ended.
func (n *namespaces) cut(i int) error { return ip("-n %s link set eth0 down", n.space(i)) }

func (n *namespaces) heal(i int) error {
	if err := ip("-n %s link set eth0 up", n.space(i)); err != nil {
		return err
	}
	return ip("-n %s route add default via %s.%d.1", n.space(i), n.net, i+1)
}

// proxies are for who may not make networks: hosts dial out through their provider's, and nobody dials them.
type proxies struct{ each [providers]proxy }

func (p *proxies) name() string    { return "proxies" }
func (p *proxies) address() string { return "127.0.0.1" }

func (p *proxies) agent(provider int, command []string) (string, []string) {
	return command[0], append(command[1:], "--data-listen", "", "--proxy", "http://"+p.each[provider].ln.Addr().String())
}

func (p *proxies) cut(provider int) error { p.each[provider].cut(); return nil }

func (p *proxies) heal(provider int) error {
	x := &p.each[provider]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.down = false
	return nil
}

// proxy tunnels by CONNECT.
type proxy struct {
	ln   net.Listener
	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func (p *proxy) listen() (err error) {
	p.open = map[net.Conn]bool{}
	if p.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	go func() {
		for {
			c, err := p.ln.Accept()
			if err != nil {
				return
			}
			go p.tunnel(c)
		}
	}()
	return nil
}

// keep holds a connection that a cut ends; false = the network is cut.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.down {
		p.open[c] = true
	}
	return !p.down
}

func (p *proxy) end(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	_ = c.Close()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *proxy) tunnel(c net.Conn) {
	defer p.end(c)
	if !p.keep(c) {
		return
	}
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil || req.Method != http.MethodConnect {
		return
	}
	to, err := net.Dial("tcp", req.Host)
	if err != nil {
		return
	}
	defer p.end(to)
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil || !p.keep(to) {
		return
	}
	go func() {
		_, _ = io.Copy(to, r)
		_ = to.Close()
	}()
	_, _ = io.Copy(c, to)
}
