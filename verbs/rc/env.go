package rc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// The variables that FromEnv reads.
const (
	VarDevices      = "TUTTI_IB_HCA"                // Devices, separated by commas
	VarGIDIndex     = "TUTTI_IB_GID_INDEX"          // GIDIndex; -1 is by rule
	VarMTU          = "TUTTI_IB_MTU"                // MTU in bytes
	VarServiceLevel = "TUTTI_IB_SL"                 // ServiceLevel
	VarTrafficClass = "TUTTI_IB_TC"                 // TrafficClass
	VarPKeyIndex    = "TUTTI_IB_PKEY_INDEX"         // PKeyIndex
	VarTimeout      = "TUTTI_IB_TIMEOUT"            // Timeout
	VarRetryCount   = "TUTTI_IB_RETRY_CNT"          // RetryCount
	VarRNRRetry     = "TUTTI_IB_RNR_RETRY"          // RNRRetry
	VarQueuePairs   = "TUTTI_IB_QPS_PER_CONNECTION" // QueuePairs
	VarInlineBytes  = "TUTTI_IB_INLINE"             // InlineBytes
	VarSignal       = "TUTTI_IB_SIGNAL"             // Signal: immediate or direct
	VarPortGrace    = "TUTTI_IB_PORT_GRACE"         // PortGrace, such as 3s
)

// FromEnv fills in those fields that are zero in c and that a variable names. A
// field that is not zero stays as it is. Values are checked when the fabric is
// opened, unless they cannot be read at all. Errors: *ConfigError.
func FromEnv(c Config) (Config, error) { return fromEnv(c, os.LookupEnv) }

func fromEnv(c Config, lookup func(string) (string, bool)) (Config, error) {
	var errs []error
	read := func(name string, wanted bool, parse func(string) error) {
		v, ok := lookup(name)
		if v = strings.TrimSpace(v); !ok || v == "" || !wanted {
			return
		}
		if err := parse(v); err != nil {
			errs = append(errs, &ConfigError{name + "=" + v, err})
		}
	}
	number := func(name string, field *int) {
		read(name, *field == 0, func(v string) (err error) {
			*field, err = parseNumber(v)
			return err
		})
	}
	read(VarDevices, len(c.Devices) == 0, func(v string) error {
		for d := range strings.SplitSeq(v, ",") {
			if d = strings.TrimSpace(d); d == "" {
				return errors.New("an empty name among the devices")
			}
			c.Devices = append(c.Devices, d)
		}
		return nil
	})
	read(VarGIDIndex, c.GIDIndex == nil, func(v string) error {
		n, err := parseNumber(v)
		if err == nil && n != -1 {
			c.GIDIndex = &n
		}
		return err
	})
	number(VarMTU, &c.MTU)
	number(VarServiceLevel, &c.ServiceLevel)
	number(VarTrafficClass, &c.TrafficClass)
	number(VarPKeyIndex, &c.PKeyIndex)
	number(VarTimeout, &c.Timeout)
	number(VarRetryCount, &c.RetryCount)
	number(VarRNRRetry, &c.RNRRetry)
	number(VarQueuePairs, &c.QueuePairs)
	number(VarInlineBytes, &c.InlineBytes)
	read(VarSignal, c.Signal == Immediate, func(v string) error {
		switch v {
		case "immediate":
		case "direct":
			c.Signal = Direct
		default:
			return errors.New("it is immediate or direct")
		}
		return nil
	})
	read(VarPortGrace, c.PortGrace == 0, func(v string) (err error) {
		c.PortGrace, err = time.ParseDuration(v)
		return err
	})
	return c, errors.Join(errs...)
}

func parseNumber(v string) (int, error) {
	n, err := strconv.ParseInt(v, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", v)
	}
	return int(n), nil
}
