package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bootstrap"
)

// algorithm is what Tutti is told to use. The name of an algorithm means that
// of the collective, where there is one only.
func (o *options) algorithm() string {
	if o.algo == "" || o.algo == "auto" || strings.Contains(o.algo, "/") {
		return o.algo
	}
	form := ""
	for _, op := range o.ops {
		switch {
		case op.exchanges():
		case form == "":
			form = op.form.String()
		case form != op.form.String():
			return o.algo
		}
	}
	return form + "/" + o.algo
}

// checkNames asks Tutti whether it knows the algorithm and the path. Outside
// of a job Init gets no further than that.
func checkNames(ctx context.Context, o *options) error {
	if o.roofline {
		return nil
	}
	if o.algo != "" && o.algo != "auto" {
		if err := checkAlgo(ctx, o); err != nil {
			return err
		}
	}
	c, err := tutti.Init(ctx, tutti.Config{Path: o.path})
	var bad *tutti.ConfigError
	switch {
	case err == nil:
		return c.Close()
	case errors.As(err, &bad) && bad.Field == "Path":
		return unknown("path", bad.Value, bad.Known)
	case errors.Is(err, bootstrap.ErrNoEnvironment):
		return nil
	}
	return err
}

// checkAlgo refuses an algorithm that none of the operations has, and lists
// those that they have.
func checkAlgo(ctx context.Context, o *options) error {
	_, err := tutti.Init(ctx, tutti.Config{Algo: "?"}) // to hear of all
	var bad *tutti.ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	known := []string{"auto"}
	for _, name := range bad.Known {
		collective, bare, _ := strings.Cut(name, "/")
		if !slices.ContainsFunc(o.ops, func(op *operation) bool { return !op.exchanges() && op.form.String() == collective }) {
			continue
		}
		if o.algo == name || o.algo == bare {
			return nil
		}
		known = append(known, name)
	}
	return unknown("algo", o.algo, known)
}
