// Package millrace is the root of the module: it holds no code, only the tests of the house itself (which room may import
// which, and that every package says what it is).
package millrace
