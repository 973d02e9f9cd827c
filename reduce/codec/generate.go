package codec

//go:generate go -C ../_gen run . -isa avx512 -out ../codec/kernels_avx512_amd64.s -stubs ../codec/kernels_avx512_amd64.go -pkg codec
//go:generate go -C ../_gen run . -isa avx2 -out ../codec/kernels_avx2_amd64.s -stubs ../codec/kernels_avx2_amd64.go -pkg codec
