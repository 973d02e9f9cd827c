// Package cmalloc lets tests use C's malloc, where the module is built with
// cgo. Nothing else imports it.
package cmalloc
