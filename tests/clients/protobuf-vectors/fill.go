package main

import (
	"fmt"
	"log"
	"reflect"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Fills objects, every field of them: when full with values that are all different, and
// otherwise with what is there and says nothing (pointers to zero, lists of one zero).
type filler struct {
	full bool
	n    int
	// How often each type is being filled just now: a type that holds itself ends.
	open map[reflect.Type]int
}

const epoch = 1_700_000_000

func (f *filler) fill(into reflect.Value) {
	f.n++
	if f.leaf(into) {
		return
	}
	of := into.Type()
	switch of.Kind() {
	case reflect.Pointer:
		if f.mayOpen(of.Elem()) {
			into.Set(reflect.New(of.Elem()))
			f.fill(into.Elem())
		}
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			into.SetBytes(f.bytes())
			return
		}
		if !f.mayOpen(of.Elem()) {
			return
		}
		length := 1
		if f.full && of.Elem().Kind() != reflect.Struct {
			length = 2
		}
		into.Set(reflect.MakeSlice(of, length, length))
		for i := range length {
			f.fill(into.Index(i))
		}
	case reflect.Map:
		if !f.mayOpen(of.Elem()) {
			return
		}
		into.Set(reflect.MakeMap(of))
		key, value := reflect.New(of.Key()).Elem(), reflect.New(of.Elem()).Elem()
		f.fill(key)
		f.fill(value)
		into.SetMapIndex(key, value)
	case reflect.Struct:
		f.open[of]++
		for i := range of.NumField() {
			if of.Field(i).Type != reflect.TypeFor[metav1.TypeMeta]() {
				f.fill(into.Field(i))
			}
		}
		f.open[of]--
	default:
		if f.full {
			f.scalar(into)
		}
	}
}

func (f *filler) mayOpen(of reflect.Type) bool {
	return f.open[of] < 2
}

func (f *filler) bytes() []byte {
	if f.full {
		return []byte{0, 255, byte(f.n)}
	}
	return []byte{}
}

// Types that are more than their fields.
func (f *filler) leaf(into reflect.Value) bool {
	switch leaf := into.Addr().Interface().(type) {
	case *apiextensionsv1.JSON:
		leaf.Raw = f.json()
	case *metav1.FieldsV1:
		leaf.Raw = f.json()
	case *runtime.RawExtension:
		leaf.Raw = f.json()
	case *metav1.Time:
		if f.full {
			leaf.Time = time.Unix(epoch+int64(f.n), 999_999_999)
		}
	case *metav1.MicroTime:
		if f.full {
			leaf.Time = time.Unix(epoch+int64(f.n), 120_345_678)
		}
	case *resource.Quantity:
		if f.full {
			*leaf = resource.MustParse(fmt.Sprintf("%dMi", f.n))
		}
	case *intstr.IntOrString:
		if f.full && f.n%2 == 0 {
			*leaf = intstr.FromInt32(int32(-f.n))
		} else if f.full {
			*leaf = intstr.FromString(fmt.Sprintf("%d%%", f.n))
		}
	case *apiextensionsv1.JSONSchemaPropsOrBool:
		leaf.Allows = f.full
		if f.open[reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()] < 2 {
			leaf.Schema = f.schema()
		}
	case *apiextensionsv1.JSONSchemaPropsOrArray:
		if f.n%2 == 0 {
			leaf.Schema = f.schema()
		} else {
			leaf.JSONSchemas = []apiextensionsv1.JSONSchemaProps{*f.schema(), {}}
		}
	case *apiextensionsv1.JSONSchemaPropsOrStringArray:
		if f.open[reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()] < 2 {
			leaf.Schema = f.schema()
		} else if f.full {
			leaf.Property = []string{"one", "two"}
		}
	default:
		return false
	}
	return true
}

func (f *filler) json() []byte {
	if f.full {
		return fmt.Appendf(nil, `{"f:n":%d,"deep":[null,{"x":1.5}]}`, f.n)
	}
	return []byte("null")
}

func (f *filler) schema() *apiextensionsv1.JSONSchemaProps {
	schema := &apiextensionsv1.JSONSchemaProps{}
	if f.mayOpen(reflect.TypeOf(*schema)) {
		f.fill(reflect.ValueOf(schema).Elem())
	}
	return schema
}

func (f *filler) scalar(into reflect.Value) {
	switch into.Kind() {
	case reflect.String:
		into.SetString(fmt.Sprintf("é%d", f.n))
	case reflect.Bool:
		into.SetBool(true)
	case reflect.Int32:
		into.SetInt(int64(-f.n))
	case reflect.Int64:
		into.SetInt(int64(f.n) << 40)
	case reflect.Float64:
		into.SetFloat(float64(f.n) / 2)
	default:
		log.Fatalf("%s: not a type this program fills", into.Type())
	}
}
